"""The leaderboard: a server that queues entries, and runners that measure them.

commands.py      tito leaderboard serve|join|runner, and tito submit
tables.py        what is kept, as SQLAlchemy tables; migrations/ brings an older database up to date
database.py      opening it: SQLite in a file, or PostgreSQL by URL
names.py         pseudonyms that look alike
people.py        invitations, tokens and sessions: only their hashes are kept
events.py        an event and its versions; opening, closing
submissions.py   taking an entry: size, form, rules, quota
jobs.py          the queue: leases, heartbeats, results
board.py         ranks, with ties where intervals overlap
audit.py         who did what
web/             pages and API
client.py        what `tito submit` and a runner say to a server
runner.py        a measuring machine
demo.py          real measurements of the backends that come with TinyTorch
"""
