def grade(label):
    return {"grade": label}


def judge(grade, tone, words):
    return {"verdict": grade}
