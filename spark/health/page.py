"""The report as one HTML file: no scripts, no external resources, light and dark mode, readable on a phone."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from string import Template

from cdc.base.words import counted, duration, moment, size
from cdc.spark.health.model import DistributionBar, HealthReport, TopicHealth

_TEMPLATES = files("cdc.spark.health") / "templates"


def as_html(report: HealthReport) -> str:
    """Returns the whole page."""
    return _fill(
        "page.html",
        title=escape(f"Topic health: {counted(len(report.topics), 'topic')}"),
        style=(_TEMPLATES / "health.css").read_text(encoding="utf-8"),
        verdict="healthy" if report.healthy else "not healthy",
        verdict_class="good" if report.healthy else "bad",
        where=escape(f"{report.kafka}, {moment(report.measured_ms)}, Spark {report.spark_version}, read_committed"),
        overview="".join(map(_overview_row, report.topics)),
        topics="".join(_topic(each, report.measured_ms) for each in report.topics),
    )


def _overview_row(topic: TopicHealth) -> str:
    worst = topic.findings[0].severity if topic.findings else "ok"
    cells = (
        f'<a href="#{escape(topic.topic, quote=True)}">{escape(topic.topic)}</a>',
        f'<span class="badge {worst}">{worst}</span>',
        f"{topic.total('records'):,}",
        f"{topic.total('live_keys'):,}",
        size(topic.total("bytes")),
        f"{topic.garbage_ratio:.0%}",
        f"{topic.total('tombstones'):,}",
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


def _topic(topic: TopicHealth, now_ms: int) -> str:
    settings = topic.settings
    return _fill(
        "topic.html",
        topic=escape(topic.topic, quote=True),
        table=escape(f"table {topic.table}" if topic.table else "not one of our topics"),
        findings="".join(
            f'<li class="{each.severity}"><span class="badge {each.severity}">{each.severity}</span> '
            f"{escape(each.text)}<p>{escape(each.remedy)}</p></li>\n"
            for each in topic.findings
        )
        or '<li class="ok"><span class="badge ok">ok</span> nothing found</li>',
        figures=_figures(topic, now_ms),
        partitions="".join(
            f"<tr><td>{each.partition}</td><td>{each.start:,}–{each.end:,}</td><td>{each.records:,}</td>"
            f"<td>{each.live_keys:,}</td><td>{each.superseded_records:,}</td><td>{size(each.bytes)}</td>"
            f"<td>{moment(each.oldest_ms)}</td><td>{moment(each.newest_ms)}</td></tr>\n"
            for each in topic.partitions
        ),
        per_partition=_bars(
            DistributionBar(label=f"partition {each.partition}", count=each.bytes) for each in topic.partitions
        ),
        per_key=_bars(topic.records_per_key),
        tombstone_ages=_bars(topic.tombstone_ages),
        hot_keys="".join(
            f"<tr><td><code>{escape(each.key)}</code></td><td>{each.partition}</td><td>{each.records:,}</td>"
            f"<td>{size(each.bytes)}</td></tr>\n"
            for each in topic.hot_keys
        ),
        schemas="".join(
            f"<tr><td><code>{escape(each.fingerprint)}</code></td>"
            f"<td>{'unknown' if each.columns is None else each.columns}</td><td>{each.records:,}</td>"
            f"<td>{each.live_keys:,}</td><td>{moment(each.oldest_ms)}</td><td>{moment(each.newest_ms)}</td></tr>\n"
            for each in topic.schemas
        ),
        odd_keys=_odd_keys(topic),
        settings=escape(
            f"cleanup.policy={settings.cleanup_policy}, delete.retention.ms={duration(settings.delete_retention_ms)}, "
            f"max.compaction.lag.ms={duration(settings.max_compaction_lag_ms)}, "
            f"min.compaction.lag.ms={duration(settings.min_compaction_lag_ms)}, "
            f"segment.ms={duration(settings.segment_ms)}, "
            f"min.cleanable.dirty.ratio={settings.min_cleanable_dirty_ratio:g}"
        ),
    )


def _figures(topic: TopicHealth, now_ms: int) -> str:
    since = topic.superseded_since_ms
    shown = (
        ("records", f"{topic.total('records'):,}"),
        ("live keys", f"{topic.total('live_keys'):,}"),
        ("bytes", size(topic.total("bytes"))),
        ("superseded", f"{topic.garbage_ratio:.0%}"),
        ("tombstones", f"{topic.total('tombstones'):,}"),
        ("waiting for the cleaner", "nothing" if since is None else duration(now_ms - since)),
    )
    return "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in shown)


def _odd_keys(topic: TopicHealth) -> str:
    rows = [
        f"<li>{' = '.join(f'<code>{escape(key)}</code>' for key in each.keys)}: {each.live} with a row</li>"
        for each in topic.aliases
    ]
    rows += [f"<li><code>{escape(key)}</code> in several partitions</li>" for key in topic.split_examples]
    return f"<h3>Keys in several spellings or partitions</h3><ul>{''.join(rows)}</ul>" if rows else ""


def _bars(bars: Iterable[DistributionBar]) -> str:
    """Draws bars relative to the largest one, with the numbers beside them."""
    shown = list(bars)
    most = max([each.count for each in shown], default=0) or 1
    return "".join(
        f'<div class="bar"><span>{escape(each.label)}</span>'
        f'<i><b style="width:{100 * each.count / most:.1f}%"></b></i><span>{each.count:,}</span></div>'
        for each in shown
    )


def _fill(template: str, **fields: str) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(fields)
