"""Decides where pods belong. Pure: standard library only, no I/O, no clock, no logging.

Facts come in and decisions go out as frozen dataclasses; whoever calls carries them out. Read in this order:
`names` (what we write where), `model` (the facts), `policy` (what a team asked for), `slots` (the one idea behind
the mix), `decide` (class, reason and what to inject for one pod), `patch` (the same as JSON patch), `status`
(what is wanted and what is there).
"""
