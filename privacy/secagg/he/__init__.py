"""Secure aggregation under one homomorphic key that the silos hold: BFV (exact) and CKKS, through SEAL.

A silo encrypts, the aggregator adds what it cannot read, silos decrypt the sum. Withstands an honest but
curious aggregator and nothing more: a silo that colludes with it reads every update, because all silos
hold the same key. Policies must say so before they admit it.
"""
