"""What stands around Triton: values -> text of files. Nothing here talks to a server.

inventory    what a workspace serves, by locks and configs alone
queries      PromQL that dashboards and rules share
panels       a dashboard as Grafana reads it
dashboards   the dashboards
prometheus   what is scraped, which rules and alerts
compose      docker-compose.yml and its private variables
image        a Dockerfile that adds what steps import to NVIDIA's image
kubernetes   manifests
files        every generated file, written or compared
yamltext     values -> YAML
"""
