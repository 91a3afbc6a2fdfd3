"""Which solutions are like each other: a report to look at, and never a verdict.

tokens   a solution as its syntax tree says it: names, texts and layout do not count
winnow   fingerprints of it (Schleimer, Wilkerson and Aiken 2003)
compare  pairs by the fingerprints they share that neither the course nor the class explains
page     the pairs side by side, as one page of HTML
"""
