"""Ensembles of a Triton repository -> pipelines of the workspace: a plan, then all of it or none.

chosen   which ensembles of the repository, callees first
called   the models that come along
plan     what would be written, proven, or why not
write    writes it; what fails half way leaves everything as it was
"""

from mmctl.building.adopt.called import FolderCopy
from mmctl.building.adopt.plan import Adoption, Plan, plan_adoption
from mmctl.building.adopt.write import adopt

__all__ = ["Adoption", "FolderCopy", "Plan", "adopt", "plan_adoption"]
