/** The arrays of flush_events that describe a batch's events. */
import { booleanArray, int4Array, textArray, timestamptzArray, uuidArray } from '../postgres/binary-array.ts'
import { SparseColumn, sparse } from '../postgres/sparse-column.ts'
import type { ForwardedDelivery, IntakeEvent } from './event.ts'

export function eventColumns(events: IntakeEvent[]): Array<Buffer | null> {
  return [
    textArray(events.map(({ kind }) => kind)),
    uuidArray(events.map(({ key }) => key)),
    timestamptzArray(events.map(({ occurredAtMs }) => occurredAtMs)),
    textArray(events.map(({ userId }) => userId)),
    sparse(
      events.map(({ groupId }) => groupId),
      textArray,
    ),
    textArray(events.map(({ messageId }) => messageId)),
    textArray(events.map(({ payload }) => payload)),
    sparse(
      events.map(({ failure }) => failure),
      textArray,
    ),
    sparse(events.map(earlierClaim), timestamptzArray),
    sparse(
      events.map(({ isOwnAct }) => (isOwnAct ? null : false)),
      booleanArray,
    ),
  ]
}

const earlierClaim = ({ claimedAtMs, occurredAtMs }: IntakeEvent) =>
  claimedAtMs !== null && claimedAtMs < occurredAtMs ? claimedAtMs : null

/** People who joined or left, beside the source: the event's position and the person. */
export function otherColumns(events: IntakeEvent[]): Array<Buffer | null> {
  const others = events.flatMap(({ userId, otherUserIds }, index) =>
    otherUserIds.filter((other) => other !== userId).map((other) => ({ position: index + 1, other })),
  )
  if (others.length === 0) return [null, null]
  return [int4Array(others.map(({ position }) => position)), textArray(others.map(({ other }) => other))]
}

/** The number of each forwarded event's delivery, and the delivery's destination. */
export function forwardColumns(forwarded: Array<ForwardedDelivery | null>): Array<Buffer | null> {
  const numbers = new Map<ForwardedDelivery, number>()
  const deliveries = forwarded.map((delivery) => {
    if (delivery === null) return null
    const number = numbers.get(delivery) ?? numbers.size + 1
    numbers.set(delivery, number)
    return number
  })
  const destinations = forwarded.map((delivery) => delivery?.destination ?? null)
  return [sparse(deliveries, int4Array), sparse(destinations, textArray)]
}

/** The one place that decides what each effect sends. A column that no event needs is null. */
export function effectColumns(events: IntakeEvent[]): Array<Buffer | null> {
  const relationships = new SparseColumn<string>(events.length)
  const conversationIds = new SparseColumn<string>(events.length)
  const conversationStatuses = new SparseColumn<string>(events.length)
  const conversationTimes = new SparseColumn<number>(events.length)
  const unsentMessages = new SparseColumn<string>(events.length)
  const suspensions = new SparseColumn<boolean>(events.length)
  for (const [index, { effect }] of events.entries()) {
    switch (effect.type) {
      case 'none':
        break
      case 'relationship':
        relationships.set(index, effect.relationship)
        break
      case 'conversation':
        conversationIds.set(index, effect.id)
        if (effect.status !== null) conversationStatuses.set(index, effect.status)
        conversationTimes.set(index, effect.atMs)
        break
      case 'unsend':
        unsentMessages.set(index, effect.messageId)
        break
      case 'suspension':
        suspensions.set(index, effect.suspended)
        break
      default:
        throw new Error(`unhandled effect ${(effect satisfies never as { type: string }).type}`)
    }
  }
  return [
    relationships.encode(textArray),
    conversationIds.encode(textArray),
    conversationStatuses.encode(textArray),
    conversationTimes.encode(timestamptzArray),
    unsentMessages.encode(textArray),
    suspensions.encode(booleanArray),
  ]
}
