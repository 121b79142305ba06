/** One attempt to send a delivery: its content is read when the connection stands, and only if the endpoint is still the same. */
import type { LeasedDelivery } from '../intake/flush.ts'
import type { ContentRow, EndpointRow } from './backlog.ts'
import type { Contents } from './contents.ts'
import { contentOf, writeMessage } from './messages.ts'
import { type Answer, type Message, post, type Target } from './post.ts'

export interface Outcome {
  /** Null: there was nothing to send. */
  answer: Answer | null
  /** What was read last. Null: nothing, because no connection stood or the delivery is gone. */
  row: ContentRow | null
}

export async function attempt(
  contents: Contents,
  endpoint: EndpointRow,
  target: Target,
  delivery: LeasedDelivery,
): Promise<Outcome> {
  let row: ContentRow | null = null
  const answer = await post(target, async () => {
    const content = await contents.read(delivery)
    row = content?.row ?? null
    if (content === undefined) return null
    let message: Message | null = null
    try {
      if (isSame(endpoint, content.row)) message = writeMessage(contentOf(content.row), Date.now())
    } finally {
      // Also if it cannot be built: erasures would wait until the session ends.
      if (message === null) content.release()
    }
    if (message === null) return null
    const whenLost = (stop: () => void) => {
      content.onLost = stop
    }
    return { message, release: content.release, whenLost }
  })
  return { answer, row }
}

/** Whether the endpoint is still what the connection was opened for. */
export const isSame = (endpoint: EndpointRow, now: ContentRow): boolean =>
  now.status === 'active' &&
  now.url === endpoint.url &&
  now.allow_private_network === endpoint.allow_private_network
