/** Every source of events. A new one is a folder beside these and a line here. */
import { lineSource } from './line/source.ts'
import { mboxSource } from './mbox/source.ts'
import type { SourceModule } from './source.ts'
import { trackingSource } from './tracking/source.ts'

export const SOURCES: SourceModule[] = [lineSource, mboxSource, trackingSource]
