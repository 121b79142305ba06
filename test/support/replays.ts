/** Replays and resends on a service with a sender and a runner of jobs, as an instance has them. */
import type { JobSummary } from '../../src/jobs/job.ts'
import { JOBS } from '../../src/operations/jobs.ts'
import type { Operation } from '../../src/operations/operation.ts'
import { REPLAYS } from '../../src/operations/replays.ts'
import { textMessage } from '../../tools/simulator/events.ts'
import { type Receiver, startReceiver, startSending } from './endpoints.ts'
import { endWaitsOfJobs, startJobRunner } from './jobs.ts'
import { runOperation } from './operations.ts'
import { eventually } from './process.ts'
import type { ReceivedEvent } from './receivers.ts'

/** The range of everything that was received in a test. */
export const TODAY = { from: '2020-01-01', to: '2100-01-01' }

/** What was received within 10 s cannot be replayed yet. */
export const setBackEvents = (database: Awaited<ReturnType<typeof startSending>>['database']) =>
  database.query(
    `update event set received_at = received_at - interval '1 minute' where received_at > now() - interval '30 seconds'`,
  )

/** @param withRunner false: the test takes turns itself or starts a runner later */
export async function startReplaying(withRunner = true) {
  const sending = await startSending()
  const { database, sender, service, tenant } = sending
  const startRunner = () => startJobRunner(database, null, (endpointId) => sender.expect([endpointId]))
  const runner = withRunner ? startRunner() : null
  const job = async (id: bigint) =>
    (await runOperation(database, JOBS.show, { id })).result?.job as unknown as JobSummary
  /** Resolves with the job when it is as wanted. */
  const until = (id: bigint, wanted: (found: JobSummary) => boolean) => eventually(() => job(id), wanted)
  /** Starts a job as an operator does. Returns its id. */
  const start = async (operation: Operation, id: bigint, input: object) => {
    const services = { counted: <T>(_actor: unknown, count: () => Promise<T>) => count() }
    const started = await runOperation(database, operation, { id, input, services })
    runner?.wake()
    return started.job as bigint
  }
  return {
    ...sending,
    /** An endpoint with a receiver. */
    addReceiver: async (columns: Record<string, unknown> = {}) => {
      const receiver = await startReceiver()
      return { receiver, id: await sending.addEndpoint(receiver.url, columns) }
    },
    replay: (endpointId: bigint, asked: object = {}) =>
      start(REPLAYS.replay, endpointId, { rate: 1_000, ...TODAY, ...asked }),
    resend: (endpointId: bigint, filters: object = {}, rate = 1_000) =>
      start(REPLAYS.resend, endpointId, { filters, rate }),
    ...{ job, until },
    endOf: (id: bigint) => until(id, ({ finishedAt }) => finishedAt !== null),
    /** Delivers messages of these people, one request each, a moment apart. Returns their texts. */
    deliverMessages: async (count: number, userIdOf: (no: number) => string = () => 'Ureplayed') => {
      const texts = Array.from({ length: count }, (_, no) => `words ${no}.`)
      for (const [no, text] of texts.entries())
        await service.deliver(tenant, [textMessage(userIdOf(no), text)])
      await setBackEvents(database)
      return texts
    },
    /** Ends the waits of jobs and deliveries, again and again until `work` has resolved. */
    hurrying: async <T>(work: Promise<T>): Promise<T> => {
      const timer = setInterval(() => {
        void sending.makeDue()
        // The only runner is between two turns, or takes the job again after this one.
        void endWaitsOfJobs(database)
        runner?.wake()
      }, 50)
      return work.finally(() => clearInterval(timer))
    },
    startRunner,
  }
}

export const eventsOf = ({ received }: Pick<Receiver, 'received'>): ReceivedEvent[] =>
  received.flatMap(({ body }) => JSON.parse(body).events as ReceivedEvent[])

export const textsOf = (receiver: Pick<Receiver, 'received'>): string[] =>
  eventsOf(receiver).map(({ message }) => message?.text)
