/* pace.h - limits the rate of one client's answers, all of them together.
 *
 * It is GCRA over bytes: one theoretical arrival time, shared by the answers of all loops.
 * pace_allows() takes nothing; what was sent is charged afterwards. Two loops that ask at the same
 * time overdraw by a burst at most, which is paid back.
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
/* How many of `want` bytes may be sent now; 0: too few to be worth it, ask again some milliseconds
 * later. */
uint64_t pace_allows(const struct pace *p, uint64_t want, uint64_t now_ms);
void pace_charge(struct pace *p, uint64_t n, uint64_t now_ms);

#endif
