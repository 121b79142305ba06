/** The simulated platform, which is closed with its test or file, and what the service asks it. */
import type { Verifier } from '../../src/accounts/verify.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { deliveryPaths } from '../../src/line-api/line-signature.ts'
import { type SimulatedPlatform, simulatePlatform } from '../../tools/simulator/platform.ts'
import { atEnd } from './at-end.ts'

export async function startPlatform(
  ...account: Parameters<typeof simulatePlatform>
): Promise<SimulatedPlatform> {
  const platform = await simulatePlatform(...account)
  atEnd(() => platform.close())
  return platform
}

export const verifierOn = (
  { url }: { url: string },
  publicUrl: string | null = null,
): Omit<Verifier, 'database'> => ({
  ...{ lineApi: new LineApi(url), publicUrl, webhookPaths: deliveryPaths, now: Date.now },
})
