import pickle
import sqlite3


def find(db: sqlite3.Connection, name: str):
    return db.execute("SELECT * FROM orders WHERE name = '" + name + "'").fetchall()


def load(blob: bytes):
    return pickle.loads(blob)


def price(expression: str) -> float:
    return eval(expression)
