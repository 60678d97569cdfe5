/* pace.h - how fast one client's answers may leave, all of them together.
 *
 * GCRA over bytes: one theoretical arrival time, shared by the answers of all loops. Looking takes
 * nothing, what was sent is charged after; two loops that look at once overdraw by a burst at most,
 * and pay it back.
 *
 * owns     counted: the gate's bucket holds one, each answer under way another
 * threads  any
 */
#ifndef SERVER_HTTP_PACE_H
#define SERVER_HTTP_PACE_H

#include <stddef.h>
#include <stdint.h>

struct pace;

struct pace *pace_new(uint64_t rate_bytes_per_s); /* > 0; held once for the caller */
struct pace *pace_hold(struct pace *p);
void pace_release(struct pace **pp); /* NULL is fine */
/* How many of `want` bytes may go now; 0: not worth it yet, ask again some milliseconds later. */
uint64_t pace_allows(const struct pace *p, uint64_t want, uint64_t now_ms);
void pace_charge(struct pace *p, uint64_t n, uint64_t now_ms);

#endif
