"""The webhook's certificates. `authority` and `renewal` are pure (time is an argument); `publish` talks to the API.

All state is in the Secret: what to do next is derived from it and the time, so any replica may do it and a crash at
any line is repaired by the next pass.
"""
