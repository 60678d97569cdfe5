/* notice.h - asks a cloud, every 5 s, whether this machine is about to be taken away.
 *
 * The URL is that of the cloud's metadata service. A GET with the fields that Google
 * (Metadata-Flavor) and Azure (Metadata) ask for is answered with 200 and one of
 *
 *     {"action": "terminate", ...}                   Amazon: spot/instance-action, 404 until there is a notice
 *     TRUE                                           Google: instance/preempted, FALSE until then
 *     {"Events": [{"EventType": "Preempt"}, ...]}    Azure: scheduledevents; Terminate, Reboot and Redeploy count as well
 *
 * when there is a notice. An event of Azure's with "Resources" names machines. It is none where
 * this one's name, which the same host's /metadata/instance/compute/name tells, is not among them.
 *
 * Everything else is none: another status or text, no answer within 5 s, nobody there. Redirects
 * are not followed and the environment's proxies not used, as the service is the machine's own.
 * Where the GET is refused with 401 a token is fetched from the same host's /latest/api/token, as
 * Amazon's IMDSv2 wants it.
 *
 * A process of its own asks, so that no answer, however slow, holds up whoever watches the ranks.
 * On a notice it sends SIGTERM to the process that started it, once, and ends.
 *
 * owns     struct notice holds the process; it dies with the one that started it
 * threads  notice_start() forks: before threads are started or when they are joined. SIGTERM must
 *          be blocked from before notice_start() until after notice_stop()
 * errors   E_USAGE: not an http or https URL
 */
#ifndef AGENT_JOB_NOTICE_H
#define AGENT_JOB_NOTICE_H

#include <sys/types.h>

#include "common/base/err.h"
#include "common/base/slice.h"

struct notice;

/* NULL is fine as a URL: then *out is NULL, and so is it for the others here. */
MUST_USE int notice_start(const char *url, struct notice **out, struct err *e);
bool notice_came(const struct notice *n);
/* Whether `from` is the process that sends the notice's SIGTERM. */
bool notice_sent(const struct notice *n, pid_t from);
/* A SIGTERM that it sent and that nobody read yet is read. One that somebody else sent stays
 * pending. */
void notice_stop(struct notice **np);

#endif
