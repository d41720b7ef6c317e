"""The webhook's certificates. `authority` and `renewal` are pure (time is an argument); `publish` talks to the API;
`keep` is one replica's pass.

All state is in the Secret and the webhook configuration: what to do next is derived from them and the time, so any
replica may do it and a crash at any line is repaired by the next pass.
"""
