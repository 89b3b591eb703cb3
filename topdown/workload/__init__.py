"""What is counted: attributes and their recodes, queries, and which queries are measured at which level."""

from topdown.workload.query import Query, normal_name
from topdown.workload.schema import DETAILED, TOTAL, Attribute, Recode, Schema
from topdown.workload.workload import Workload

__all__ = ["DETAILED", "TOTAL", "Attribute", "Query", "Recode", "Schema", "Workload", "normal_name"]
