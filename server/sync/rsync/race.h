/* race.h - a connection to whichever of a host's addresses answers first: one that is dead costs the others no time to speak of.
 *
 * The next address is tried when the one before has failed, or has been silent for a quarter of a second; the tries before it
 * go on meanwhile. Families take turns, in the order that the system gave each.
 *
 * owns     the sockets until one is handed over; race_close() at any time, in won() too; nothing comes after it
 * threads  the loop's; won() never runs inside race_open. There is no deadline: the owner has one
 * source   RFC 8305 (4, 5)
 */
#ifndef SERVER_SYNC_RSYNC_RACE_H
#define SERVER_SYNC_RSYNC_RACE_H

struct addrinfo;
struct event_base;
struct race;

/* addresses: at least one; borrowed until race_close(). won: once; a connected socket that does not block, which is the owner's
 * from then on, or -1 and why the last of them failed. */
struct race *race_open(struct event_base *base, const struct addrinfo *addresses,
                       void (*won)(void *arg, int fd, const char *why), void *arg);
void race_close(struct race **rp); /* NULL is fine */

#endif
