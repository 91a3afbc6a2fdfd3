"""The server: pages for people, an API for `tito submit` and runners.

app.py         puts it together
guard.py       headers, limits of size and rate, log without secrets
signin.py      who asks: a browser's session or a token
pages.py       what everybody sees
instructor.py  what instructors do
api.py         JSON
plots.py       SVG
views.py       what templates are given
templates/, static/   Jinja2, one style sheet, htmx (BSD Zero Clause licence)
"""
