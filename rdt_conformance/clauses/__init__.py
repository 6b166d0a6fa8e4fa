"""The clauses of the contract, one module for each area. Read them through `rdt_conformance.contract`."""
