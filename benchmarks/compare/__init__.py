"""`make compare`: gangs by Spotweave beside plain pods and other ways to start gangs, on equal clusters, in one run.

`contenders` says how each is installed and how its gangs are declared, `scenarios` what they are asked to do,
`sighting` what is seen of it. Kueue and coscheduling are built from their Go modules (`localcluster.build`), the native
gangs of Kubernetes 1.36 (alpha) are switched on.
"""
