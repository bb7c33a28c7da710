"""The stores, and what several of them share. A store keeps records and decides nothing.

Each store begins with its implementation notes.
"""
