"""One partition that leads or follows: in-sync replicas, high watermark, leader epochs. Pure but for its log."""
