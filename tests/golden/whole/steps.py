def count(text):
    return {"n": [len(row.split()) for row in text]}


def tell(label, n):
    return {"told": [f"{a} {b}" for a, b in zip(label, n, strict=True)]}
