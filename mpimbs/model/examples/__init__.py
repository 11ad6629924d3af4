"""Systems that have a name: generators, mechanisms, figures."""
