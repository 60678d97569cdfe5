/* alternates.h - the URLs of an origin with the same files at several places: which one is asked.
 *
 * They are asked in the order of the list. One that failed rests for 5 s, then 10, up to 60: it is
 * asked only after those that do not rest. When the time is over, one request probes it, while the
 * others do as if it still rested. All code names URLs below the first one; alternates_move()
 * turns them into those of the one that is asked.
 *
 * owns     alternates_close() frees
 * threads  any
 * errors   E_CONFIG: a URL is none that an origin can have
 */
#ifndef SERVER_FETCH_ALTERNATES_H
#define SERVER_FETCH_ALTERNATES_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct alternates;
struct url;

enum { ALTERNATES_MAX = 16, ALTERNATE_NONE = ALTERNATES_MAX };

/* first: with a '/' at its end. others: as configured, http or https. */
MUST_USE int alternates_open(const char *first, const char *const *others, size_t n,
                             struct alternates **out, struct err *e);
void alternates_close(struct alternates **ap); /* NULL is fine */

unsigned alternates_count(const struct alternates *a);
const char *alternates_url(const struct alternates *a, unsigned i); /* with a '/' at its end */
/* Is that the scheme, host and port of one of them? */
bool alternates_have_host(const struct alternates *a, const struct url *u);
/* Writes the URL of the same file at number i. False: it is below none of them, *out is empty. */
MUST_USE bool alternates_move(const struct alternates *a, unsigned i, struct slice url,
                              struct buf *out);

/* The next one. tried: a bit for each that was asked already. ALTERNATE_NONE: all were. probe_ms:
 * how long a request may take to find out whether one is back. */
unsigned alternates_choose(struct alternates *a, uint32_t tried, uint64_t probe_ms,
                           uint64_t now_ms);
/* A request that began then has failed: it rests, at least for least_ms. What began before an
 * earlier failure was noted says nothing new. True: it is the first failure in a row. */
bool alternates_failed(struct alternates *a, unsigned i, uint64_t began_ms, uint64_t least_ms,
                       uint64_t now_ms);
/* A request that began then has succeeded. True: the ones before had failed. */
bool alternates_worked(struct alternates *a, unsigned i, uint64_t began_ms);
/* How many failures in a row. */
unsigned alternates_failures(const struct alternates *a, unsigned i);

#endif
