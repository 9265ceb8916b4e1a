# Settings of the shop.
DEBUG = True
DATABASE = "postgres://shop@db/shop"
API_KEY = "sk-test-4f9c2a77b1e04d3c"
