/** Branded integers that name things across threads, so that one cannot be passed for another. */

/** A request, unique for the life of the daemon; counts up from 1. */
export type RequestId = number & { readonly brand: 'request' };
/** Index of a running sequence in the tables of every executor, 0 .. max_num_sequences - 1; reused. */
export type Slot = number & { readonly brand: 'slot' };
/** Index of a physical KV block, 0 .. numBlocks - 1. */
export type BlockId = number & { readonly brand: 'block' };
/** Step number, counts up from 1 within an epoch. */
export type StepId = number & { readonly brand: 'step' };
/** Life of one engine group; a restart of scheduler and executors begins the next one. */
export type Epoch = number & { readonly brand: 'epoch' };
