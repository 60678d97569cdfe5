/* notice.h - polls a cloud, every 5 s, for a notice that this machine will be taken away.
 *
 * The URL is that of the cloud's metadata service. A GET with the fields that Google
 * (Metadata-Flavor) and Azure (Metadata) require is answered with 200 and, when there is a
 * notice, one of
 *
 *     {"action": "terminate", ...}                   Amazon: spot/instance-action, 404 before
 *     TRUE                                           Google: instance/preempted, FALSE until then
 *     {"Events": [{"EventType": "Preempt"}, ...]}    Azure: scheduledevents; also Terminate,
 *                                                    Reboot and Redeploy
 *
 * An event of Azure's with "Resources" names machines. It does not count if this one's name, from
 * the same host's /metadata/instance/compute/name, is not among them.
 *
 * Everything else means that there is no notice: another status or text, no answer within 5 s, no
 * service. Redirects are not followed and the environment's proxies are not used, because the
 * service is the machine's own. If the GET is refused with 401, a token is fetched from the same
 * host's /latest/api/token, as Amazon's IMDSv2 requires.
 *
 * A separate process sends the requests, so that a slow answer never delays the process that
 * watches the ranks. On a notice it sends SIGTERM to its parent, once, and ends.
 *
 * owns     struct notice holds the process, which dies with its parent
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

/* url NULL is fine: then *out is NULL, which the other functions accept. */
MUST_USE int notice_start(const char *url, struct notice **out, struct err *e);
bool notice_came(const struct notice *n);
/* Is `from` the process that sends the notice's SIGTERM? */
bool notice_sent(const struct notice *n, pid_t from);
/* Consumes a pending SIGTERM that it sent. One from another sender stays pending. */
void notice_stop(struct notice **np);

#endif
