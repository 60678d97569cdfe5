/* message_queue.h - how other threads send messages to a loop: posted from any thread, delivered
 * on the loop in order.
 *
 * A message is embedded in the object that it concerns; the sender keeps it alive until it has
 * been delivered. deliver() runs on the loop thread, outside any lock, and may free the message's
 * owner. One eventfd write wakes the loop for a whole batch.
 *
 * owns     message_queue_close() on the loop's thread, when no thread posts any more; undelivered
 *          messages are delivered first
 * threads  message_queue_post from any; all else on the loop's thread
 */
#ifndef COMMON_OS_MESSAGE_QUEUE_H
#define COMMON_OS_MESSAGE_QUEUE_H

#include "common/base/list.h"

struct event_base;
struct message_queue;

struct message {
    struct list node; /* in the queue while posted */
    void (*deliver)(struct message *l);
};

struct message_queue *message_queue_open(struct event_base *base);
void message_queue_post(struct message_queue *m, struct message *l);
void message_queue_close(struct message_queue **mp);

#endif
