def names(code):
    return ["good" if row.sum() > 0 else "bad" for row in code]


def reasons(label):
    return [f"it looks {row}" for row in label]
