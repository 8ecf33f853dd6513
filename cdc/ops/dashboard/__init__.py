"""The web page for the person on call: the state of one or more deployments, now and over the last hours.

``deployment`` looks at the deployment, and ``recorder`` does so regularly in a thread. ``pages`` answers,
``inspecting`` looks a key up in a process of its own, and ``opening`` puts it together. ``static`` is what the
browser gets.
"""
