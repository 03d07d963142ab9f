"""What needs a server, a client and load together: `mmctl drill`.

faults      what can happen to a node
fates       what then becomes of all other nodes, by the graph alone
promises    what the declaration promises of the answer, and how soon
rewiring    plans and configs in which a stub stands in for a node
stubs       folders of stubs; stub_model.py is their shipped model
requests    samples as requests of one row, and of several
answers     whether two answers are the same
rig         a private server whose nodes can be made to fail
healthy     the pipeline as it is: alone, side by side, in batches
reach       the rows that reach a node, and the answers that are promised
judge       replies against promises
rows        what a drill finds
drill       one node and one fault after the other
"""
