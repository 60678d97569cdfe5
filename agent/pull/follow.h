/* follow.h - the SHA-256 of a growing file: reads behind the part that is complete, out of the page cache.
 *
 * The digest of the whole can only be computed in order while parts arrive in any; so it follows, on a thread of its
 * own, and is done a moment after the last part.
 *
 * owns     follow_free() needs it idle
 * threads  the loop's; moved() is called there whenever a stretch has been read
 */
#ifndef AGENT_PULL_FOLLOW_H
#define AGENT_PULL_FOLLOW_H

#include "common/hash/digest.h"
#include "common/os/pool.h"

struct follow;

struct follow *follow_new(struct pool *pool, struct mailbox *reply, int fd,
                          void (*moved)(void *arg, int rc, const struct err *why), void *arg);
void follow_to(struct follow *f, uint64_t end); /* all bytes before `end` are there */
bool follow_busy(const struct follow *f);
uint64_t follow_at(const struct follow *f);
void follow_final(struct follow *f, struct digest *out);
void follow_free(struct follow **fp);

#endif
