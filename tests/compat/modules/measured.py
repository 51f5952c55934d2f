"""A task module for perago 0.6.1 with the one thing of it that isn't here: metrics of its own."""

from pydantic import BaseModel

from perago import MetricRecorder, MetricSpec, task


class Nothing(BaseModel):
    pass


@task(name="measured", owner_email="metrics@example.com", metrics=MetricSpec(attempts=True))
def measured(params: Nothing, metrics: MetricRecorder) -> Nothing:
    metrics.counter("seen").add(1)
    return params
