/* journald.h - writes lines to the system's journal, or to syslog, for a program without a
 * stderr.
 *
 * It speaks systemd's native protocol: one datagram of FIELD=value lines, so that a line can be
 * found by its job (`journalctl SLURM_JOB_ID=42`). Without a journal the same text goes to
 * /dev/log in RFC 3164's format. Nothing waits: a journal that hangs loses lines.
 *
 * owns     journald_close()
 * threads  any, once open
 * source   systemd's "Native Journal Protocol"; RFC 3164
 */
#ifndef COMMON_OS_JOURNALD_H
#define COMMON_OS_JOURNALD_H

#include "common/base/log.h"

#define JOURNALD_SOCKET "/run/systemd/journal/socket"
#define SYSLOG_SOCKET   "/dev/log"

struct journald;

/* fields: "NAME=value" each, ends with NULL, without newlines; copied. Never fails: without a
 * socket lines are lost. */
struct journald *journald_open(const char *journal, const char *syslog, const char *identifier,
                               const char *const *fields);
void journald_say(const struct journald *j, enum log_level level, const char *line);
void journald_close(struct journald **jp); /* NULL is fine */

#endif
