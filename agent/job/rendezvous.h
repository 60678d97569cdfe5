/* rendezvous.h - the protocol between the agents of a job's nodes: bytes on a TCP connection to
 * the agent of node 0.
 *
 * The handshake has fixed lengths:
 *   service   "mrdagnt1", nonce [16]
 *   agent     nonce [16], HMAC-SHA256(key, "agent" service's nonce, agent's nonce) [32]
 *   service   HMAC-SHA256(key, "service", service's nonce, agent's nonce) [32]
 * The key is the SHA-256 of the job's id, which itself is never sent. A peer that cannot prove
 * that it knows the id learns nothing and is disconnected. An agent that reached another job's
 * service, or another program, tries the next port. So does one whose node rank is taken: two
 * jobs without a given id have the same one at the same address.
 *
 * The proofs are not bound to the connection: a process that listens at the agreed port first, or
 * an intermediary, can pass them on.
 *
 * Then messages are sent both ways: u16 BE length, u8 type, the numbers listed below as u32 BE in
 * their order, a text.
 */
#ifndef AGENT_JOB_RENDEZVOUS_H
#define AGENT_JOB_RENDEZVOUS_H

#include "common/base/buf.h"

enum {
    RDZV_PORTS = 8, /* the agreed port, and those after it that are tried if it is in use */
    RDZV_NONCE = 16,
    RDZV_MAC = 32,
    RDZV_HELLO = 8 + RDZV_NONCE,
    RDZV_PROOF = RDZV_NONCE + RDZV_MAC,
    RDZV_TEXT = 200,
    RDZV_BUFFER = 4096,
};

enum rdzv_type {
    /* both ways, so that silence means something. allow_ms: no message may come for this long */
    RDZV_ALIVE = 1,
    RDZV_JOIN, /* agent: my ranks do not run, I am ready for a generation. node, ranks, min, max */
    RDZV_FAILED, /* agent: a rank failed. generation, code, by_signal */
    RDZV_DONE,   /* agent: all my ranks ended well. generation */
    RDZV_LEAVE,  /* agent: I leave, with code. text */
    /* service: start. generation, nodes, node (the index in it), first rank, world, port */
    RDZV_WORLD,
    RDZV_STOP,  /* service: that generation has failed, end your ranks. generation, text */
    RDZV_END,   /* service: the job is over. code, text */
    RDZV_TAKEN, /* service: another agent has your node rank. text */
    RDZV_LOST,  /* not sent: the connection broke. text */
};

struct rdzv_message {
    enum rdzv_type type;
    uint32_t generation, node, ranks, min, max, code, by_signal, allow_ms, nodes, first, world,
        port;
    char text[RDZV_TEXT];
};

void rdzv_mac(const char *id, const char *role, const uint8_t service[RDZV_NONCE],
              const uint8_t agent[RDZV_NONCE], uint8_t out[RDZV_MAC]);
bool rdzv_same(const uint8_t *a, const uint8_t *b, size_t n); /* in constant time */
void rdzv_encode(const struct rdzv_message *m, struct buf *out);
/* Removes one message from the front of *in: 1; 0: it is incomplete; E_PROTOCOL. */
MUST_USE int rdzv_decode(struct buf *in, struct rdzv_message *out);
/* Reads what has arrived, as far as there is room in *in. 0, or E_NETWORK: the other end closed
 * or reset the connection. */
MUST_USE int rdzv_receive(int fd, struct buf *in);
/* Without waiting: E_NETWORK if the other end does not read. */
MUST_USE int rdzv_send(int fd, const struct rdzv_message *m);

#endif
