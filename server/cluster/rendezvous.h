/* rendezvous.h - which mirror is responsible for a key: the one with the highest score (weighted
 * rendezvous hashing). When a mirror comes or goes, only the keys for which it is responsible
 * move.
 *
 * threads  any; pure
 */
#ifndef SERVER_CLUSTER_RENDEZVOUS_H
#define SERVER_CLUSTER_RENDEZVOUS_H

#include "common/base/slice.h"

/* Above 0. A mirror of twice the weight is responsible for twice as many keys. */
double rendezvous_score(const char *node, uint32_t weight, struct slice key);

#endif
