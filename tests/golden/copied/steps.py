import words


def judge(code):
    return {"label": words.names(code), "score": code[:, 0]}


def explain(label):
    return {"why": words.reasons(label)}
