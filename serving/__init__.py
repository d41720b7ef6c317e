"""One HTTP/1.1 server under the webhook, the page and the probes.

`messages` and `parser` are sans-I/O: bytes in, requests out; a response in, bytes out. `listener` has the socket,
`connection` one caller. `crowd` and `turns` are pure, too: who has to go when it is full, and whose large body is next.
`memory` fits the limits to the container. `routes` finds the answer for a path, `probes` are the routes that every
program has, and `threads` serves beside a program that has no event loop. A program passes one callable:
`answer(request)`.

Law: it imports no other package of ours, and knows nothing about the meaning of requests.
"""
