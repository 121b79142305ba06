/** The simulated platform, which is closed with its test or file. */
import { type SimulatedPlatform, simulatePlatform } from '../../tools/simulator/platform.ts'
import { atEnd } from './at-end.ts'

export async function startPlatform(
  ...account: Parameters<typeof simulatePlatform>
): Promise<SimulatedPlatform> {
  const platform = await simulatePlatform(...account)
  atEnd(() => platform.close())
  return platform
}
