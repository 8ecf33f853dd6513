"""The configuration, one YAML file per database: what to read, where to publish, what to mirror."""

from cdc.base.config.load import load
from cdc.base.config.model import Config, HttpConfig, KafkaConfig, SinkConfig, SourceConfig, TopicsConfig
from cdc.base.config.registry import RegistryConfig
from cdc.base.config.view import OtherTopic, ViewConfig

__all__ = [
    "Config",
    "HttpConfig",
    "KafkaConfig",
    "OtherTopic",
    "RegistryConfig",
    "SinkConfig",
    "SourceConfig",
    "TopicsConfig",
    "ViewConfig",
    "load",
]
