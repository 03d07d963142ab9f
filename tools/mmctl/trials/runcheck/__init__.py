"""What only a run can show of a model repository: `mmctl check --run`.

run        the whole check                       plan      what is run, and in which order
folder     the private copy of the repository    stage     the server: it loads and answers
model      a loaded model, from its own config   rows      values to ask it with
questions  a request, and how it ended           exam      which questions, and what answers mean
outputs    answers against declared outputs      likeness  whether two answers are the same
reasons    what an error text of Triton means
"""

from mmctl.trials.runcheck.run import run_check

__all__ = ["run_check"]
