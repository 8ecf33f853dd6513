"""One YAML file per database: what to read, where to publish, what to mirror."""

from cdc.config.load import load
from cdc.config.model import Config, HttpConfig, KafkaConfig, SinkConfig, SourceConfig, TopicsConfig

__all__ = ["Config", "HttpConfig", "KafkaConfig", "SinkConfig", "SourceConfig", "TopicsConfig", "load"]
