/** All sources of events. To add one, add a folder and a line here. */
import { lineSource } from './line/line-source.ts'
import { mboxSource } from './mbox/mbox-source.ts'
import type { SourceModule } from './source.ts'
import { trackingSource } from './tracking/tracking-source.ts'

export const SOURCES: SourceModule[] = [lineSource, mboxSource, trackingSource]
