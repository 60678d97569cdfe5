/* report.h - what a preflight found, told: a table for people, plain lines, JSON, a file for Prometheus.
 *
 * Lines: the verdict first, as monitoring shows the first line, then one a check: level, name, sentence, code in brackets, what
 * to do. JSON and the metrics' names are stable (docs/operations.md).
 */
#ifndef AGENT_PREFLIGHT_REPORT_H
#define AGENT_PREFLIGHT_REPORT_H

#include <stdio.h>

#include "agent/preflight/preflight.h"
#include "common/base/buf.h"

/* quiet: what is OK or was skipped is left out. */
void report_lines(const struct preflight_report *r, bool quiet, struct buf *out);
void report_table(const struct preflight_report *r, unsigned columns, bool quiet, struct buf *out);
/* The members of an object that is open. */
void report_json(const struct preflight_report *r, struct buf *out);
void report_metrics(const struct preflight_report *r, struct buf *out);
/* Written beside, then renamed: node_exporter never reads half of it. */
MUST_USE int report_textfile(const struct preflight_report *r, const char *path, struct err *e);
/* Nagios' numbers: 0 OK, 1 WARN, 2 CRIT, 3 nothing could be looked at. */
int report_exit(const struct preflight_report *r);
/* docs/preflight.md: every check and every key. */
void report_catalogue(struct buf *out);

#endif
