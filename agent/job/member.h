/* member.h - this agent's connection to the rendezvous: it joins, learns when its ranks start and
 * stop, and reports how they end.
 *
 *   member_open(&want, signals, &m, e);
 *   member_join(m, ranks);                   // none of them runs
 *   for (;;) {
 *       poll(member_fd(m), ..., member_next_ms(m) - now);
 *       while (member_event(m, now, &ev)) ...    // RDZV_WORLD, RDZV_STOP, RDZV_END or RDZV_LOST
 *       member_tick(m, now);
 *   }
 *
 * Node 0's agent also runs the rendezvous (service.h), unless that is external. A connection that
 * breaks before the ranks start is made again; later it is RDZV_LOST.
 *
 * owns     a connection, on node 0 a process; member_close() ends both
 * threads  one; member_tick() may take up to 8 s a port where other programs listen, until a
 *          signal waits; a name server that does not answer blocks it for as long as the resolver
 *          waits
 */
#ifndef AGENT_JOB_MEMBER_H
#define AGENT_JOB_MEMBER_H

#include "agent/job/rendezvous.h"
#include "agent/job/service.h"

struct member;

/* signals: a signalfd. While it is readable, member_tick() stops dialling. */
MUST_USE int member_open(const struct service_params *w, int signals, struct member **out,
                         struct err *e);
void member_close(struct member **mp); /* NULL is fine */
int member_fd(const struct member *m); /* -1: not connected */
uint64_t member_next_ms(const struct member *m);
void member_join(struct member *m, unsigned ranks);
bool member_event(struct member *m, uint64_t now_ms, struct rdzv_message *out);
void member_tick(struct member *m, uint64_t now_ms);
void member_say(struct member *m, const struct rdzv_message *what);
/* Nothing will come from here for this long, and that does not count as silence. */
void member_pause(struct member *m, uint32_t allow_ms);

#endif
