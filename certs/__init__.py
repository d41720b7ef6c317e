"""The webhook's certificates. `authority` and `renewal` are pure (time is an argument); `publish` talks to the API;
`reconcile` is one replica's pass.

All state is in the Secret and the webhook configuration. The next step is derived from them and the time, so any
replica may take it, and the next pass repairs a crash at any line.
"""
