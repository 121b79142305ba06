/** A verification ends in time even if the platform never answers, with the real time limits. */
import { expect, it } from 'vitest'
import { MISBEHAVIOURS, type Misbehaviour } from '../../tools/simulator/misbehaviour.ts'
import { setUpVerification } from '../support/verification.ts'

const { platform, addVerifiable, verify } = await setUpVerification()

it.each(['silent', 'half', 'garbled'])('answers 503 within 10 s while the platform is %s', async (name) => {
  const tenant = await addVerifiable()
  platform.misbehave(MISBEHAVIOURS[name] as Misbehaviour)
  const startedAtMs = performance.now()
  expect((await verify(tenant)).status).toBe(503)
  expect(performance.now() - startedAtMs).toBeLessThan(10_000)
})
