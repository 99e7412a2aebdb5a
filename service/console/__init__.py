"""The console: pages that show the service to people, and let them steer it.

A page is a template and a function. It calls the endpoints of operations, with the permissions of
the person who is signed in, so that a page can do what the API can and nothing else.
"""
